"""The authority: the transactional SQL store that holds the headers of everything and the control plane."""
