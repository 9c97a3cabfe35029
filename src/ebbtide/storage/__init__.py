"""Object stores behind one small protocol, and the canonical form of an address."""
