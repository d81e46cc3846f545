"""What a pass and a schedule rule are: frozen, validated values, and how they are put in order.

Nothing here imports TVM, and a manifest's file imports it only inside functions: the command line,
the tuning records and the ablation read manifests in processes that have no TVM.
"""
