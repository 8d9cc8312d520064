"""What ``toktier bench`` measures: sessions beside the libraries that encode everything again, on the same texts."""
