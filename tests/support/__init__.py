"""What several test modules share: fakes, samples, small graphs and models."""
