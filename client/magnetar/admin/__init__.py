"""What an administrator asks for and is told."""
