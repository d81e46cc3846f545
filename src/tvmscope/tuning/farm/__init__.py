"""Measures on other machines: TVM's RPC tracker and servers.

The command `farm` and the tuning job call it; it knows no search.
"""
