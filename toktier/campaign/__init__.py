"""Looking for texts on which toktier is wrong: at random, by enumeration, and in programs of session operations."""
