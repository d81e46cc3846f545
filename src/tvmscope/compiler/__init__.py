"""From a prepared model to an artifact; the home of everything that knows TVM's IR."""
