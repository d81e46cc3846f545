"""Compiles a prepared model to an artifact; all code that knows TVM's IR is here."""
