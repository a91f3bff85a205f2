"""Several runs beside each other: `runs` reads them, `overlays` lays their curves into the same
charts, `tables` says what differs between them and what each came to."""
