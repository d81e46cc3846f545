"""What makes a tuned kernel trusted: measured again beside the untuned one, part by part."""
