"""From any input to upright page pictures, their own text and their lines. Knows no models."""
