"""The playground: rlc in a page, checked and explained in the browser by Pyodide."""
