"""What is kept beside a prepared model: operators' names, large weights, sensitivity, sizes.

`models` and `runtime` write it; whoever gets the folder reads it.
"""
