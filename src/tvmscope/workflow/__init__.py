"""The product's jobs: each file reads as the list of stages it runs."""
