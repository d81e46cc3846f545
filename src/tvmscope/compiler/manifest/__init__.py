"""The manifests of passes and schedule rules: frozen, validated values, and their order.

Nothing here imports TVM, and a manifest's file imports it only inside functions: the command line,
the tuning records and the ablation read manifests in processes that have no TVM.
"""
