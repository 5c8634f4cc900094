"""Generated code of the wire protocol; `make proto` writes it."""
