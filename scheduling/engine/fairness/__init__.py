"""Fair division: exact weighted water-filling, flat and over a tree."""
