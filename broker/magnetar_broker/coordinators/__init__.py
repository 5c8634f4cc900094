"""What coordinators ask of a broker: ends of transactions, watermarks, incarnations, orphans."""
