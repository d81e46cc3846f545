"""Other machines to measure on: TVM's RPC tracker and servers."""
