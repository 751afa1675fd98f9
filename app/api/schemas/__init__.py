"""What goes over the wire, as models: the contract's shapes and nothing else."""
