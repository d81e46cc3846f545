"""What passes share: a mutator by operator, values known at compile time, images of a batch."""
