"""Measures on other machines: TVM's RPC tracker and servers."""
