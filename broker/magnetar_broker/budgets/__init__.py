"""How much memory transactions, tails and waiting commands may take."""
