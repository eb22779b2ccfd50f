"""Access to the app over the network. Nothing here imports Streamlit or the pages: app.py connects them."""
