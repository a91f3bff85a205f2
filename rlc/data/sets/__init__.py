"""Rows by the name of their set: ``problems`` gives tasks of known sets, of files and of the hub,
``hub`` loads data sets of the Hugging Face hub, and ``countdown`` makes problems."""
