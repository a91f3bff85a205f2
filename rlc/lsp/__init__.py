"""The language server. ``server`` says which question of an editor is answered by which module;
``documents`` has the texts, and the notes of the checker on them. The server needs pygls, what
makes the answers mostly does not."""
