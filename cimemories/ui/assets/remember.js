const YEAR_SECONDS = 365 * 24 * 3600;

// Once for each time that a name was given: another tab, whose person is an earlier one, is drawn again too. Kept in the
// document, since Streamlit may load this file again.
export default function ({ data: { cookie, name, given } }) {
  const kept = document.documentElement.dataset;
  if (!given || kept.named === given) return;
  kept.named = given;
  document.cookie = `${cookie}=${encodeURIComponent(name)}; path=/; max-age=${YEAR_SECONDS}; samesite=strict`;
}
