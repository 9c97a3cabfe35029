"""What a run did, as one self-contained HTML page."""
