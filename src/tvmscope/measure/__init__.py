"""Times the function that a reference names, each in a separate process."""
