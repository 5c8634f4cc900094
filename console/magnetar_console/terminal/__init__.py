"""The console in a terminal: `magnetar top`. It shows the views of the hub by Textual."""
