"""Other libraries' interfaces, with the ids that toktier keeps: one module for each library, imported by who has it."""
