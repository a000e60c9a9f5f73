"""Random graphs against eager: what a graph is, how it is drawn, judged, run in worker processes, and made small."""
