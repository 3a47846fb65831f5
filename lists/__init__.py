"""Op lists, kernel tables and contrib schemas as data; ships as amp_rewrite.lists."""
