"""One broker: its tables, its request processors and what runs beside them."""
