"""What a report shows, as plain values: every format draws the same ones."""
