"""What the pages of the tutorial import to show the reference at work."""
