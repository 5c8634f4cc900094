"""Objects beside a store in an object store: addresses, stamps, marks and checks."""
