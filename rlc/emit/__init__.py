"""Training jobs as standalone Python scripts: `write` fills a template, `refusals` lists what the
target cannot express."""
