"""Commands of clients and administrators: parsed, handled and answered."""
