"""How values reach the disk: dataclasses as JSON, files that are whole or not there."""
