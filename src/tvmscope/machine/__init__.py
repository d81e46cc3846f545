"""What this machine is: CPU features, the GPU, the load on it. Asks the system, never TVM."""
