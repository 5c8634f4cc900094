"""Topics as Parquet files: the offload, the directory that it keeps, and the way back."""
