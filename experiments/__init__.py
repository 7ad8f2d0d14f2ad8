"""One file per paper: rows in, figures, tables and claims out."""
