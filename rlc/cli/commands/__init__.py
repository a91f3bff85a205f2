"""The commands, one module each: HELP, DESCRIPTION, EPILOG, add_arguments(parser), run(args)."""
