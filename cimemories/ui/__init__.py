"""What pages are drawn with: safe text, the URL, the head of a page, charts and tables. Knows nothing but `model`."""
