"""Plans a comparison of backends, runs it and checks what they computed."""
