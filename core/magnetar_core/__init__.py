"""Parts that every Magnetar process shares: identifiers, batches, errors, wire and transport."""
