"""The program that agents talk to: it joins nodes and holds their sessions."""
