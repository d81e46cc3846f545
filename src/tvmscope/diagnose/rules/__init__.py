"""One file per rule, each with `RULE = Rule(...)`; the engine finds them."""
