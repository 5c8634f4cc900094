"""The pages of the console and what guards them: HTTP, and no question to the cluster."""
