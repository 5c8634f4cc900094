"""What every Magnetar process shares: identifiers, batches, errors, the wire and its transport."""
