"""Commands of coordinators at a broker: ends of transactions, watermarks, incarnations, orphans."""
